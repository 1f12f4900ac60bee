"""Random changes of training images, made for a whole batch at once on the device where the data lie."""
