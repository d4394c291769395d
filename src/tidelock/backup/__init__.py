"""Copies of homes elsewhere, and homes made from them."""
