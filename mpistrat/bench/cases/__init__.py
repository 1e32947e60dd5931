"""The cases, a file each: what ``python -m mpistrat.bench CASE`` runs."""
