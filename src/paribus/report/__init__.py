"""Tables, figures, page and PDF, computed only from the records. No torch, no network."""
