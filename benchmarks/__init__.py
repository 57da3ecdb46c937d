"""What `make bench` runs: generated conversations, and recorded ones where `PENSTOCK_CORPORA` names them."""
