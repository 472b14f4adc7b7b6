"""relax_glue: Apache TVM Relax passes that bring the glue of a model into forms TensorRT takes."""
