"""Cluster resolvers: which task of the job is this process, and who are the others?"""
