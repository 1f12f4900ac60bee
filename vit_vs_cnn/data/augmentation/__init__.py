"""Random augmentation of training images, for a whole batch at once, on the device of the images."""
