"""What commands print: pictures, tables and facts, for people and for programs."""
