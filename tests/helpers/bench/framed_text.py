"""Read messages that typer prints in a frame, broken into lines of the terminal's width."""

__all__ = ["unframed"]


def unframed(output: str) -> str:
    """Return what is said in frames, as one line."""
    return " ".join(output.replace("│", " ").split())
