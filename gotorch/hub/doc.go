// Package hub reads models as Python saves them: folders of the layout of Hugging Face's hub, with a config.json and
// weights in safetensors files. It downloads nothing.
//
//	folder, err := hub.Open("gpt2")
//	defer folder.Close()
//	fmt.Println(folder.Config().ModelType(), len(folder.Names()))
//	embedding, err := folder.Tensor("wte.weight")         // in the file, until it is used
//	row, err := folder.Rows("wte.weight", 50256, 50257)   // of which only this row is read
//
// Opening reads headers only. A tensor is a window on its file, of which the system reads what is used; a folder of
// 100 GB is opened in milliseconds.
//
// [LoadInto] fills a model. It says what fits and what does not, and where the model's names are not the folder's a
// [Mapping] says what becomes what:
//
//	report, err := hub.LoadInto(model, folder, hub.LoadOptions{Mapping: hub.Mapping{
//		hub.Prefix("model.", ""),
//		hub.Split("h.*.attn.c_attn.weight", 0, "h.*.q.weight", "h.*.k.weight", "h.*.v.weight").Transposed(),
//	}})
//	fmt.Println(report)
//
// [SaveModel] writes such a folder, which Python's from_pretrained reads. Package gotorch.dev/gotorch/hub/transformers
// has GPT-2, BERT and Llama, for folders of Python's transformers.
//
// Folders may come from anybody. Nothing in them is run, names cannot lead out of the folder, and what files say of
// themselves is held to what they are; see docs/hub.md for what remains, a file that is shortened while it is in use.
package hub
