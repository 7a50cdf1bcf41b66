"""Operators whose functions are Spark columns: run by Spark itself, without Python.

Kafka: none; Spark: Column, functions.expr.
"""
