"""Tables, figures, page and PDF, computed only from the records, without torch or a network."""
