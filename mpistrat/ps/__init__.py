"""Variables that live in one place: how they are split, and how pushes change them."""
