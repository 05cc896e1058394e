"""A page of the report for each stage of the knowledge phase: each module gives the parts of one section, or none."""
