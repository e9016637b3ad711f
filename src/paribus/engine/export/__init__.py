"""Export of a trained trial as a Hugging Face folder.

A plain GPT-2 or Llama needs no code of ours. Any other model brings its code (`modeling_paribus.py`
and custom parts), for `trust_remote_code`. Nothing here needs transformers.
"""

from paribus.engine.export.folder import export_trial

__all__ = ["export_trial"]
