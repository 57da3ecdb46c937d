"""`python -m website`: builds the site into `out/website/site`, and fails where a link leads nowhere."""

import sys

from website.build import build_site

if __name__ == "__main__":
    sys.exit(build_site())
