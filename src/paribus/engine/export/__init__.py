"""Export of a trained model to a Hugging Face folder.

A plain GPT-2 or Llama needs none of our code. For any other model, the folder includes code
(`modeling_paribus.py` and custom parts), which `trust_remote_code` loads. The export does not need
transformers.
"""

from paribus.engine.export.folder import export_trial

__all__ = ["export_trial"]
