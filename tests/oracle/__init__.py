"""Slow, obvious readers and evaluators, written from the specifications and never from ``nnk``'s own code.

They share nothing with the library but its error classes and the plain shape of its tuples. Production code is tested
against them in both directions; they never ship.
"""
