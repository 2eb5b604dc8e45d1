"""`python -m pytorch_bridge`: see pytorch_bridge.cli."""

import sys

from pytorch_bridge.cli import main

if __name__ == "__main__":
    sys.exit(main())
