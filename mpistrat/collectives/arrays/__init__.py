"""Arrays on their way in and out: conversion, GPUs and their streams, memory for results."""
