# Runs in every container before the training starts.
pip install -q scikit-learn
