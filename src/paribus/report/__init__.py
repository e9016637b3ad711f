"""Tables, figures, page and paper, computed only from the records. No torch, no network."""
