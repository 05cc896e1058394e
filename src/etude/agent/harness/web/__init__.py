"""The web, behind two seams (`services.WebSearch`, `services.WebFetch`): off by default, and in training and benches always."""
