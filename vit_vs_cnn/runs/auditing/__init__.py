"""What is wrong with images before anything is trained on them, and which test images were as good as seen."""
