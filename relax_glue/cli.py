"""The command line: `python -m relax_glue explain|optimize|split|demo`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputShapeError, RelaxGlueError

if TYPE_CHECKING:
    import tvm

    from .report import Report

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if left out.

    Returns
    -------
    int
        0; 2 for bad input, with one message on standard error; 130 when interrupted.
    """
    args = _parser().parse_args(argv)
    try:
        args.run(args)
    except RelaxGlueError as error:
        print(f"relax_glue: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class _Version(argparse.Action):
    """Imports what it tells of only when it is asked, as the commands do."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import tvm

        import relax_glue

        print(f"relax_glue {relax_glue.__version__}, TVM {tvm.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m relax_glue",
        description="Give TensorRT as much of a model as can be given, in as few pieces as can be.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="tell the versions of relax_glue and TVM")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    explain = commands.add_parser(
        "explain",
        help="tell which TensorRT regions a model becomes, and what stays outside and why",
        description="Tell which TensorRT regions a model becomes, and what stays outside them and why.",
    )
    _add_model_options(explain)
    explain.add_argument("--rules", action="store_true", help="tell too what every rule did")
    explain.add_argument(
        "--rule",
        metavar="NAME",
        action="append",
        default=[],
        help="tell where a rule, or the rules of a pass, fired, and why not elsewhere",
    )
    explain.add_argument("--json", action="store_true", help="print the report as JSON")
    explain.add_argument("-o", "--output", metavar="FILE", help="write the report to FILE")
    explain.set_defaults(run=_explain)
    optimize = commands.add_parser(
        "optimize",
        help="write the partitioned module",
        description="Optimise and partition a model. Without -o, the module is printed as TVMScript, weights left out.",
    )
    _add_model_options(optimize)
    optimize.add_argument("--json", action="store_true", help="with -o: print the report as JSON")
    optimize.add_argument(
        "-o", "--output", metavar="OUT.relax", help="save the module, weights and all, and print a report"
    )
    optimize.add_argument(
        "--require-full-offload", action="store_true", help="fail if an operator has to stay outside TensorRT"
    )
    optimize.set_defaults(run=_optimize)
    split = commands.add_parser(
        "split",
        help="write a detector as two modules, its network and its post-processing",
        description="Split a detector at its suppression, into OUT.network.relax and OUT.postprocessing.relax.",
    )
    _add_model(split)
    split.add_argument("-o", "--output", metavar="OUT", required=True, help="the path that the two files begin with")
    split.set_defaults(run=_split)
    demo = commands.add_parser(
        "demo",
        help="do the whole of it on a trained text detector, and check the numbers",
        description="Fetch a trained text detector, optimise it, run it on the CPU, and compare with ONNX Runtime.",
    )
    demo.set_defaults(run=_demo)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a .onnx, .onnx.gz, .tflite, .relax or TVMScript .py file")
    parser.add_argument(
        "-s",
        "--input-shape",
        metavar="NAME=1x3x640x640",
        action="append",
        default=[],
        help="fix the shape of an input; may be given several times, and without NAME= for a model of one input; "
        "? leaves an extent free, and with commas, NAME=n,3,h,w, it can be given a name",
    )
    parser.add_argument(
        "--range",
        metavar="AXIS=1:16",
        action="append",
        default=[],
        help="the least and the largest value of a free extent, by its name; either may be left out",
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    _add_model(parser)
    parser.add_argument(
        "--exclude", metavar="OP", action="append", default=[], help="keep an operator with TVM, such as nn.softmax"
    )
    parser.add_argument(
        "--disable", metavar="PASS", action="append", default=[], help="leave out a pass or a rule, by its name"
    )
    parser.add_argument(
        "--enable", metavar="PASS", action="append", default=[], help="run a pass that is off by default"
    )


Extents = tuple["int | str | None", ...]


def parse_input_shapes(texts: Sequence[str]) -> dict[str, Extents] | Extents | None:
    """Read shapes as they are written on the command line.

    Parameters
    ----------
    texts : sequence of str
        Such as ``images=1x3x640x640``; a lone one may leave the name out. ``?`` stands for a free extent, and in a list
        with commas, ``images=n,3,h,w``, so does a name.

    Returns
    -------
    dict, tuple or None
        What `relax_glue.from_onnx` takes as `input_shapes`.

    Raises
    ------
    InputShapeError
        A text cannot be read, a name comes twice, or one is missing where there are several shapes.
    """
    named: dict[str, Extents] = {}
    for text in texts:
        name, equals, shape = text.rpartition("=")
        if not equals and len(texts) == 1:
            return _extents(text, shape)
        if not name:
            raise InputShapeError(f"--input-shape {text}: of several shapes each needs its name, NAME=1x3x640x640")
        if name in named:
            raise InputShapeError(f"--input-shape {text}: the shape of '{name}' has been given already")
        named[name] = _extents(text, shape)
    return named or None


def _extents(text: str, shape: str) -> Extents:
    listed = "," in shape
    parts = (shape.split(",") if listed else shape.lower().split("x")) if shape else []
    if not all(part == "?" or _is_number(part) or (listed and part.isidentifier()) for part in parts):
        raise InputShapeError(
            f"--input-shape {text}: a shape is written 1x3x640x640, with ? for a free extent, or n,3,h,w"
        )
    return tuple(None if part == "?" else int(part) if _is_number(part) else part for part in parts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[int | None, int | None]] | None:
    """Read ranges of free extents as they are written on the command line.

    Parameters
    ----------
    texts : sequence of str
        Such as ``n=1:16``, ``n=:16`` and ``n=4:``.

    Returns
    -------
    dict or None
        What `relax_glue.from_onnx` takes as `ranges`.

    Raises
    ------
    InputShapeError
        A text cannot be read, or a name comes twice.
    """
    named: dict[str, tuple[int | None, int | None]] = {}
    for text in texts:
        name, equals, ends = text.partition("=")
        least, colon, most = ends.partition(":")
        if not (name and equals and colon) or not all(not end or _is_number(end) for end in (least, most)):
            raise InputShapeError(f"--range {text}: a range is written n=1:16; either end may be left out")
        if name in named:
            raise InputShapeError(f"--range {text}: the range of '{name}' has been given already")
        named[name] = (int(least) if least else None, int(most) if most else None)
    return named or None


def _load(args: argparse.Namespace) -> tvm.IRModule:
    from .frontend import load

    return load(args.model, parse_input_shapes(args.input_shape), parse_ranges(args.range))


def _explain(args: argparse.Namespace) -> None:
    import relax_glue

    report = relax_glue.explain(
        _load(args),
        exclude_ops=args.exclude,
        disable=args.disable,
        enable=args.enable,
        rules=args.rules or args.rule,
    )
    text = _shown(report, args.json)
    if args.output is None:
        print(text)
    else:
        _write(args.output, text + "\n")


def _optimize(args: argparse.Namespace) -> None:
    import relax_glue

    from .frontend import save

    mod = relax_glue.optimize(
        _load(args),
        exclude_ops=args.exclude,
        disable=args.disable,
        enable=args.enable,
        require_full_offload=args.require_full_offload,
    )
    if args.output is None:
        print(mod.script())
        return
    save(mod, args.output)
    print(_shown(relax_glue.explain(mod), args.json))


def _split(args: argparse.Namespace) -> None:
    import relax_glue

    from .frontend import save

    halves = relax_glue.split_postprocessing(_load(args))
    for name, half in halves._asdict().items():
        save(half, f"{args.output}.{name}.relax")
    print(relax_glue.explain(halves.network))


def _shown(report: Report, as_json: bool) -> str:
    return report.to_json(indent=2) if as_json else str(report)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RelaxGlueError(f"{path} cannot be written: {error.strerror or error}") from error


def _demo(args: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo()
