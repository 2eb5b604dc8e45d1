"""Models of torchvision, timm and transformers, held to what torch.export's own module computes."""
