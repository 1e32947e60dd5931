"""Arrays on their way in and out: conversion, GPUs, NaN, memory that is used again."""
