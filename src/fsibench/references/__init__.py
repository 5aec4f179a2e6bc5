"""Reference posteriors: what an exact sampler finds on small problems under one stated prior.

Draws of functions at test rows, predictive quantiles and the evidence, from two independent samplers that agree
(`sampling`), one Parquet file per problem beside this module (`files`), and distances of a prediction from them (`distances`).
"""

from fsibench.references.files import LEVELS, PROBLEMS, Reference, load

__all__ = ["LEVELS", "PROBLEMS", "Reference", "load"]
