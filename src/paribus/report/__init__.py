"""Reports of a study (tables, figures, HTML page, PDF), rendered from its records."""
