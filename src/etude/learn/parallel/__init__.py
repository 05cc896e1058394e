"""A model over many processes: which rank holds what, and what they exchange. The model's own modules know shapes, and no rank."""
