// Command tensorboard makes the calls of a file with package tensorboard, for tests/test_tensorboard.py to compare with
// those of torch.utils.tensorboard.
package main

import (
	"fmt"
	"image"
	"image/color"
	"os"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/train"
	"gotorch.dev/gotorch/train/tensorboard"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(calls, folder string) error {
	value, err := gotorch.Load(calls)
	if err != nil {
		return err
	}
	w, err := tensorboard.NewSummaryWriter(folder)
	if err != nil {
		return err
	}
	for i, call := range value.([]any) {
		c := args{call.(gotorch.Dict)}
		err := c.do(w)
		// What is refused there is refused here.
		if refused := c.Get("refused") == true; refused != (err != nil) {
			return fmt.Errorf("call %d, %v: %v, refused there: %v", i, c.Get("method"), err, refused)
		}
	}
	_ = w.Close() // the first of those errors
	return nil
}

type args struct{ gotorch.Dict }

func (a args) text(name string) string {
	s, _ := a.Get(name).(string)
	return s
}

func (a args) texts(name string) (list []string) {
	values, _ := a.Get(name).([]any)
	for _, v := range values {
		list = append(list, v.(string))
	}
	return list
}

func (a args) number(name string) float64 {
	switch v := a.Get(name).(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}

func (a args) numbers(name string) (list []float64) {
	values, _ := a.Get(name).([]any)
	for _, v := range values {
		list = append(list, v.(float64))
	}
	return list
}

func (a args) tensor(name string) gotorch.Tensor {
	t, _ := a.Get(name).(gotorch.Tensor)
	return t
}

func (a args) values(name string) (list []train.Value) {
	dict, _ := a.Get(name).(gotorch.Dict)
	for key, value := range dict.All() {
		list = append(list, train.Value{Name: key.(string), Value: value.(float64)})
	}
	return list
}

func (a args) do(w *tensorboard.SummaryWriter) error {
	tag, step := a.text("tag"), int(a.number("global_step"))
	var at time.Time
	if seconds := a.number("walltime"); seconds != 0 {
		at = time.Unix(int64(seconds), 0)
	}
	switch a.text("method") {
	case "add_scalar":
		return w.AddScalar(tag, a.number("scalar_value"), step, tensorboard.AddScalarOptions{
			Walltime: at, NewStyle: a.Get("new_style") == true, DoublePrecision: a.Get("double_precision") == true})
	case "add_scalars":
		return w.AddScalars(a.text("main_tag"), a.values("tag_scalar_dict"), step)
	case "add_tensor":
		return w.AddTensor(tag, a.tensor("tensor"), step)
	case "add_histogram":
		return w.AddHistogram(tag, a.tensor("values"), step, tensorboard.AddHistogramOptions{
			Bins: a.numbers("bins"), MaxBins: int(a.number("max_bins"))})
	case "add_histogram_raw":
		return w.AddHistogramRaw(tag, tensorboard.Histogram{Min: a.number("min"), Max: a.number("max"), Num: a.number("num"),
			Sum: a.number("sum"), SumSquares: a.number("sum_squares"), BucketLimits: a.numbers("bucket_limits"), BucketCounts: a.numbers("bucket_counts")}, step)
	case "add_image":
		return w.AddImage(tag, a.tensor("img_tensor"), step, tensorboard.AddImageOptions{DataFormats: a.text("dataformats")})
	case "add_images":
		return w.AddImages(tag, a.tensor("img_tensor"), step, tensorboard.AddImagesOptions{DataFormats: a.text("dataformats")})
	case "add_figure":
		picture := image.NewRGBA(image.Rect(0, 0, 5, 4))
		for i := range 20 {
			picture.Set(i%5, i/5, color.RGBA{uint8(10 * i), uint8(5 * i), 7, 255})
		}
		return w.AddFigure(tag, picture, step)
	case "add_video":
		return w.AddVideo(tag, a.tensor("vid_tensor"), step, tensorboard.AddVideoOptions{FPS: 10})
	case "add_audio":
		return w.AddAudio(tag, a.tensor("snd_tensor"), step, tensorboard.AddAudioOptions{SampleRate: a.Get("sample_rate")})
	case "add_text":
		return w.AddText(tag, a.text("text_string"), step)
	case "add_pr_curve":
		return w.AddPRCurve(tag, a.tensor("labels"), a.tensor("predictions"), step, tensorboard.AddPRCurveOptions{
			NumThresholds: a.Get("num_thresholds"), Weights: a.tensor("weights")})
	case "add_pr_curve_raw":
		return w.AddPRCurveRaw(tag, tensorboard.PRCurve{TruePositives: a.numbers("true_positive_counts"), FalsePositives: a.numbers("false_positive_counts"),
			TrueNegatives: a.numbers("true_negative_counts"), FalseNegatives: a.numbers("false_negative_counts"), Precision: a.numbers("precision"),
			Recall: a.numbers("recall")}, step, tensorboard.AddPRCurveRawOptions{NumThresholds: a.Get("num_thresholds")})
	case "add_custom_scalars":
		return w.AddCustomScalars([]tensorboard.ChartCategory{
			{Title: "a", Charts: []tensorboard.Chart{{Title: "both", Tags: []string{"x/1", "x/2"}}, {Title: "bounds", Tags: []string{"x", "low", "high"}, Margin: true}}},
			{Title: "b", Charts: []tensorboard.Chart{{Title: "one", Tags: []string{"y"}}}},
		})
	case "add_custom_scalars_multilinechart":
		return w.AddCustomScalarsMultilinechart(a.texts("tags"), tensorboard.AddCustomScalarsOptions{Category: a.text("category")})
	case "add_custom_scalars_marginchart":
		return w.AddCustomScalarsMarginchart(a.texts("tags"), tensorboard.AddCustomScalarsOptions{Title: a.text("title")})
	case "add_mesh":
		return w.AddMesh(tag, a.tensor("vertices"), step, tensorboard.AddMeshOptions{
			Colors: a.tensor("colors"), Faces: a.tensor("faces"), ConfigDict: a.text("json")})
	case "add_hparams":
		var hparams []tensorboard.HParam
		dict, _ := a.Get("hparam_dict").(gotorch.Dict)
		domains, _ := a.Get("hparam_domain_discrete").(gotorch.Dict)
		for key, value := range dict.All() {
			domain, _ := domains.Get(key).([]any)
			hparams = append(hparams, tensorboard.HParam{Name: key.(string), Value: value, Domain: domain})
		}
		return w.AddHParams(hparams, a.values("metric_dict"), tensorboard.AddHParamsOptions{RunName: a.text("run_name"), GlobalStep: step})
	case "add_embedding":
		var metadata [][]string
		for _, text := range a.texts("metadata") {
			metadata = append(metadata, []string{text})
		}
		return w.AddEmbedding(a.tensor("mat"), step, tensorboard.AddEmbeddingOptions{Metadata: metadata, LabelImg: a.tensor("label_img"), Tag: tag})
	case "add_graph":
		model := nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(8, 3)))
		return w.AddGraph(model, tensorboard.AddGraphOptions{InputToModel: []gotorch.Tensor{gotorch.Zeros([]int64{5, 1, 4, 4})}})
	}
	return fmt.Errorf("there is no method %s", a.text("method"))
}
