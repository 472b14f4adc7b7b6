"""A Relax dataflow block as a graph: values with their producers and users, rewritten and written back.

`read_block` and `write_block` turn a dataflow block into a `Graph` and back; `map_blocks` does so for every
dataflow block of a function, branches of `If` and local functions included.
"""

from .blocks import map_blocks, map_functions
from .graph import Graph, Place
from .node import Node, Value, checks_nothing
from .read import read_block
from .shapes import Extent, dtype_of, extents, is_static, product, same, same_shape
from .write import write_block

__all__ = [
    "Extent",
    "Graph",
    "Node",
    "Place",
    "Value",
    "checks_nothing",
    "dtype_of",
    "extents",
    "is_static",
    "map_blocks",
    "map_functions",
    "product",
    "read_block",
    "same",
    "same_shape",
    "write_block",
]
