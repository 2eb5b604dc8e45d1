// Package transformers has some of the models of Python's transformers, for folders that its save_pretrained wrote or
// that were downloaded: GPT-2, Llama and BERT. They are short, and meant to be read, copied and changed.
//
//	folder, err := hub.Open("gpt2")
//	model, report, err := transformers.LoadGPT2(folder)
//	fmt.Println(report)
//	ids := gotorch.FromSlice([]int64{15496, 11, 616}, 1, 3)
//	next := transformers.Generate(model, ids, transformers.GenerateOptions{MaxNewTokens: 20})
//
// Tokens are numbers; what makes them of text is not part of gotorch, see docs/hub.md.
//
// Fields have the names that state dicts of Python have, so that weights go both ways by [hub.LoadInto] and
// [hub.SaveModel]. GPT-2 stores the weights of its linear layers the other way round, and [GPT2Mapping] says so.
//
// Results are held to those of transformers: those of Llama and BERT to the last bit, those of GPT-2, whose weights lie the
// other way round in memory, to rounding. The bits are those that transformers computes with weights in PyTorch's own memory:
// weights that safetensors left at an odd address of a file give a product with one row another order of sums.
package transformers
