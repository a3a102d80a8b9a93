"""`chiasm trace`: what a pod did when, as a picture and as a report.

`pods` asks, `laid_out` turns recordings into tracks, `perfetto` writes those, `report` judges.
"""
