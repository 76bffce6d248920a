"""One loop, one tree walk; drafters and rules plug into them."""
