"""Run the command line with ``python -m caloric``."""

from caloric.cli import main

if __name__ == "__main__":
    main()
