"""Render job scripts: a site's values and a user's options in, text out; nothing is started."""
