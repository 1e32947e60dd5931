"""The gradients of known networks, as shapes: catalogue.py lists them."""
