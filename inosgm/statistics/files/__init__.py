"""Tables in files: CSV and Parquet, on a disk or wherever fsspec reaches."""
