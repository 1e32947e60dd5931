"""``python -m mpistrat``, where the command ``mpistrat`` is not on the PATH."""

from mpistrat.cli.main import main

if __name__ == "__main__":
    main()
