"""`CentralStorageStrategy`: variables once a node, or on one GPU."""
