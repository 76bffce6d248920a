"""Image models and what the decoding loop may ask of them."""
