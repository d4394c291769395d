"""The kit for tests: of stores and trees in packages of your own, and small logs to play with.

Its modules need pytest, which `pip install 'tidelock[testing]'` brings; nothing else in Tidelock imports them.
"""
