"""The demo model: shelf pictures, questions about them, and a small model that answers from sight.

This package draws, asks, trains and measures. It knows nothing of the worker, the operator or the
sidecar: what it hands over is the folder `demo/model/`, an ordinary Hugging Face checkpoint.
"""
