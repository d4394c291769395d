"""What the supervisor is made of: who performs what the machine asks for, and who watches what comes of it."""
