"""``mpistrat bench report``: a page of figures from result files, or a comparison of two."""
