// Package tensorboard writes what TensorBoard shows: scalars, histograms, images, texts, graphs, hyperparameters. It
// is torch.utils.tensorboard.
//
//	w, err := tensorboard.NewSummaryWriter("runs/digits")
//	...
//	defer w.Close()
//	for step := range 100 {
//		err := w.AddScalar("loss", loss, step)
//		...
//	}
//	err = w.AddHistogram("weights", model.Weight, 100)
//	err = w.AddImages("digits", batch, 0)
//
// Then, in a shell, `tensorboard --logdir runs` and a browser. A training loop does it by itself:
//
//	loop.Log(tensorboard.NewLog("runs/digits"))
//
// An event file is a sequence of records with checksums. It is only ever appended to, a whole record at a time, so that
// after a crash, or on a full disk, what is there can be read. Methods return an error if the arguments do not make
// sense, a *gotorch.Error, or if the file cannot be written, and then nothing of the record is in it. Close returns the
// first error of all, for programs that look only there.
//
// Tensors may be of any device, are read at once and not kept.
package tensorboard
