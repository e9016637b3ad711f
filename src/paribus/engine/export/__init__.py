"""The way out: a trained trial as a Hugging Face folder that anybody's tools load.

A GPT-2 or Llama becomes a plain one. Any other brings its code (`modeling_paribus.py`, and the
user's own parts), for `trust_remote_code`. Nothing here needs transformers.
"""

from paribus.engine.export.folder import export_trial

__all__ = ["export_trial"]
