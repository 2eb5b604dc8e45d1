// Package detection has torchvision's networks that find objects in images, with its names, options, initial values
// and state dicts:
//
//	model := detection.FasterRCNNResNet50FPN(detection.FasterRCNNOptions{Trained: true})
//	err := nn.Load(model, "fasterrcnn_resnet50_fpn.pth") // as Python saved it with torch.save(model.state_dict(), ...)
//	detection.OverwriteEps(model, 0)                     // as torchvision does for these weights
//	model.Eval()
//	found := model.Detect(images)                        // of each image boxes, labels and scores
//
// Images are tensors (3, H, W) of numbers from 0 to 1, and may be of several sizes. While training the model returns
// losses, for which it is told what is there:
//
//	losses, _ := model.Forward(images, []detection.Target{{Boxes: boxes, Labels: labels}})
//	losses.Sum().Backward()
//
// To learn other classes, put another predictor in the place of the last one: see [NewFastRCNNPredictor]. With the same
// seed the initial weights, what is drawn while training, losses and detections are torchvision's to the last bit. Boxes
// are those of package ops: two corners, x1, y1, x2, y2, in pixels.
package detection

import (
	"fmt"
	"iter"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/vision/models"
	"gotorch.dev/gotorch/vision/ops"
)

// Backbone makes maps of a batch of images.
type Backbone interface {
	nn.Modular
	// Forward makes maps of images (N, C, H, W), the largest one first.
	Forward(x gotorch.Tensor) ops.FeatureMaps
}

// IntermediateLayerGetter is the first layers of a model, and returns what some of them make: see
// [NewIntermediateLayerGetter].
type IntermediateLayerGetter struct {
	nn.ModuleDictModule
	ReturnLayers map[string]string
}

// NewIntermediateLayerGetter makes a module of the children of a model up to the last one that is in returnLayers,
// which has the names of maps by those of layers. The layers are the model's own. It panics with a ValueError if the
// model has no such layer, and with a TypeError if a child on the way has no Forward of one tensor.
func NewIntermediateLayerGetter(model nn.Modular, returnLayers map[string]string) *IntermediateLayerGetter {
	const op = "detection.NewIntermediateLayerGetter"
	m := nn.Init(&IntermediateLayerGetter{ReturnLayers: returnLayers})
	missing := len(returnLayers)
	of, ok := model.(interface {
		NamedChildren() iter.Seq2[string, nn.Modular]
	})
	if !ok {
		panic(args.TypeError(op, "the model is a %T, without children", model))
	}
	for name, child := range of.NamedChildren() {
		if missing == 0 {
			break
		}
		if _, ok := child.(nn.Layer); !ok {
			panic(args.TypeError(op, "%q is a %T, which has no Forward of one tensor", name, child))
		}
		m.Set(name, child)
		if _, ok := returnLayers[name]; ok {
			missing--
		}
	}
	if missing > 0 || len(returnLayers) == 0 {
		panic(args.ValueError(op, "return_layers are not present in model: %v", returnLayers))
	}
	return m
}

// Forward returns the maps of the layers.
func (m *IntermediateLayerGetter) Forward(x gotorch.Tensor) ops.FeatureMaps {
	var maps ops.FeatureMaps
	for name, layer := range m.All() {
		x = nn.Call(layer.(nn.Layer), x)
		if out, ok := m.ReturnLayers[name]; ok {
			maps = append(maps, ops.FeatureMap{Name: out, Tensor: x})
		}
	}
	return maps
}

// BackboneWithFPN is the first layers of a model, and a pyramid of their maps: see [NewBackboneWithFPN].
type BackboneWithFPN struct {
	nn.Module
	Body *IntermediateLayerGetter
	FPN  *ops.FeaturePyramidNetwork

	OutChannels int64 // of all maps
}

// BackboneWithFPNOptions are the arguments of [NewBackboneWithFPN] that have defaults.
type BackboneWithFPNOptions struct {
	ExtraBlocks ops.ExtraBlock                // nil: [ops.LastLevelMaxPool]
	NormLayer   func(channels int64) nn.Layer // of the pyramid; nil: none
}

// NewBackboneWithFPN makes a [Backbone] of a model: see [NewIntermediateLayerGetter] and
// [ops.NewFeaturePyramidNetwork].
func NewBackboneWithFPN(model nn.Modular, returnLayers map[string]string, inChannelsList []int64, outChannels int64, opts ...BackboneWithFPNOptions) *BackboneWithFPN {
	opt := args.Option(opts)
	if opt.ExtraBlocks == nil {
		opt.ExtraBlocks = ops.NewLastLevelMaxPool()
	}
	m := &BackboneWithFPN{Body: NewIntermediateLayerGetter(model, returnLayers), OutChannels: outChannels}
	m.FPN = ops.NewFeaturePyramidNetwork(inChannelsList, outChannels, ops.FeaturePyramidNetworkOptions{ExtraBlocks: opt.ExtraBlocks, NormLayer: opt.NormLayer})
	return nn.Init(m)
}

// Forward implements [Backbone].
func (m *BackboneWithFPN) Forward(x gotorch.Tensor) ops.FeatureMaps {
	return m.FPN.Forward(m.Body.Forward(x))
}

// FasterRCNN finds objects in images: see [NewFasterRCNN].
type FasterRCNN struct {
	nn.Module
	Transform *GeneralizedRCNNTransform
	Backbone  Backbone
	RPN       *RegionProposalNetwork
	RoIHeads  *RoIHeads `nn:"roi_heads"`
}

// FasterRCNNOptions are the arguments of [NewFasterRCNN], and of the functions for its architectures, that have
// defaults. Those without a comment are torchvision's.
type FasterRCNNOptions struct {
	NumClasses gotorch.Scalar // with the background, which is 0; default: 91, for architectures

	MinSize       []int64        // the shorter side of images, one of these while training; nil: 800
	MaxSize       gotorch.Scalar // the most that the longer side is; default: 1333
	ImageMean     []float64      // nil: that of ImageNet
	ImageStd      []float64      // nil: that of ImageNet
	SizeDivisible gotorch.Scalar // of a batch's height and width; default: 32
	FixedSize     []int64        // the width and height of all images, rather than MinSize and MaxSize

	RPNAnchorGenerator   *AnchorGenerator // nil: one size for each of five maps, from 32 to 512
	RPNHead              *RPNHead
	RPNPreNMSTopNTrain   gotorch.Scalar // default: 2000
	RPNPreNMSTopNTest    gotorch.Scalar // default: 1000
	RPNPostNMSTopNTrain  gotorch.Scalar // default: 2000
	RPNPostNMSTopNTest   gotorch.Scalar // default: 1000
	RPNNMSThresh         gotorch.Scalar // default: 0.7
	RPNFGIoUThresh       gotorch.Scalar // default: 0.7
	RPNBGIoUThresh       gotorch.Scalar // default: 0.3
	RPNBatchSizePerImage gotorch.Scalar // default: 256
	RPNPositiveFraction  gotorch.Scalar // default: 0.5
	RPNScoreThresh       gotorch.Scalar // default: 0.0, and 0.05 for MobileNet's architectures
	BoxRoIPool           *ops.MultiScaleRoIAlign
	BoxHead              nn.Layer
	BoxPredictor         BoxPredictor   // instead of NumClasses
	BoxScoreThresh       gotorch.Scalar // the least score of what is found; default: 0.05
	BoxNMSThresh         gotorch.Scalar // how much boxes of a class may overlap; default: 0.5
	BoxDetectionsPerImg  gotorch.Scalar // default: 100
	BoxFGIoUThresh       gotorch.Scalar // default: 0.5
	BoxBGIoUThresh       gotorch.Scalar // default: 0.5
	BoxBatchSizePerImage gotorch.Scalar // default: 512
	BoxPositiveFraction  gotorch.Scalar // default: 0.25
	BBoxRegWeights       []float64      // nil: 10, 10, 5, 5

	// Trained is for weights that were learned: the backbone's norms are frozen, where torchvision does so, and of
	// its layers only the last ones learn, TrainableBackboneLayers of them. Only for architectures.
	Trained                 bool
	TrainableBackboneLayers gotorch.Scalar // default: 3 if Trained. Only for architectures
}

// NewFasterRCNN makes torchvision's class FasterRCNN of a backbone whose maps have so many channels. It panics with a
// ValueError unless there is either NumClasses or BoxPredictor, and for numbers that contradict each other.
//
// See https://docs.pytorch.org/vision/stable/models/faster_rcnn.html.
func NewFasterRCNN(backbone Backbone, outChannels int64, opts ...FasterRCNNOptions) *FasterRCNN {
	const op = "detection.NewFasterRCNN"
	opt := args.Option(opts)
	if opt.Trained || args.Given(opt.TrainableBackboneLayers) {
		panic(args.ValueError(op, "Trained and TrainableBackboneLayers are for architectures: the backbone is made already"))
	}
	return newFasterRCNN(op, backbone, outChannels, opt)
}

func newFasterRCNN(op string, backbone Backbone, outChannels int64, opt FasterRCNNOptions) *FasterRCNN {
	if backbone == nil {
		panic(args.TypeError(op, "the backbone is nil"))
	}
	number := func(name string, field gotorch.Scalar, value float64) float64 {
		return args.Float(op, name, field, value)
	}
	count := func(name string, field gotorch.Scalar, value int64) int64 {
		n := args.Int(op, name, field, value)
		if n < 0 {
			panic(args.ValueError(op, "%s must not be negative, and is %d", name, n))
		}
		return n
	}
	switch given := args.Given(opt.NumClasses); {
	case given && opt.BoxPredictor != nil:
		panic(args.ValueError(op, "num_classes should be None when box_predictor is specified"))
	case !given && opt.BoxPredictor == nil:
		panic(args.ValueError(op, "num_classes should not be None when box_predictor is not specified"))
	}
	generator, head := opt.RPNAnchorGenerator, opt.RPNHead
	if generator == nil {
		generator = defaultAnchors()
	}
	if head == nil {
		head = NewRPNHead(outChannels, generator.NumAnchorsPerLocation()[0])
	}
	rpn := NewRegionProposalNetwork(generator, head, number("RPNFGIoUThresh", opt.RPNFGIoUThresh, 0.7), number("RPNBGIoUThresh", opt.RPNBGIoUThresh, 0.3),
		count("RPNBatchSizePerImage", opt.RPNBatchSizePerImage, 256), number("RPNPositiveFraction", opt.RPNPositiveFraction, 0.5),
		TopN{count("RPNPreNMSTopNTrain", opt.RPNPreNMSTopNTrain, 2000), count("RPNPreNMSTopNTest", opt.RPNPreNMSTopNTest, 1000)},
		TopN{count("RPNPostNMSTopNTrain", opt.RPNPostNMSTopNTrain, 2000), count("RPNPostNMSTopNTest", opt.RPNPostNMSTopNTest, 1000)},
		number("RPNNMSThresh", opt.RPNNMSThresh, 0.7), RegionProposalNetworkOptions{ScoreThresh: number("RPNScoreThresh", opt.RPNScoreThresh, 0)})
	pool, boxHead, predictor := opt.BoxRoIPool, opt.BoxHead, opt.BoxPredictor
	if pool == nil {
		pool = ops.NewMultiScaleRoIAlign([]string{"0", "1", "2", "3"}, []int64{7}, 2)
	}
	if boxHead == nil {
		boxHead = NewTwoMLPHead(outChannels*pool.OutputSize[0]*pool.OutputSize[0], 1024)
	}
	if predictor == nil {
		predictor = NewFastRCNNPredictor(1024, count("NumClasses", opt.NumClasses, 0))
	}
	heads := NewRoIHeads(pool, boxHead, predictor, number("BoxFGIoUThresh", opt.BoxFGIoUThresh, 0.5), number("BoxBGIoUThresh", opt.BoxBGIoUThresh, 0.5),
		count("BoxBatchSizePerImage", opt.BoxBatchSizePerImage, 512), number("BoxPositiveFraction", opt.BoxPositiveFraction, 0.25), opt.BBoxRegWeights,
		number("BoxScoreThresh", opt.BoxScoreThresh, 0.05), number("BoxNMSThresh", opt.BoxNMSThresh, 0.5), count("BoxDetectionsPerImg", opt.BoxDetectionsPerImg, 100))
	mean, std, sizes := opt.ImageMean, opt.ImageStd, opt.MinSize
	if mean == nil {
		mean = []float64{0.485, 0.456, 0.406}
	}
	if std == nil {
		std = []float64{0.229, 0.224, 0.225}
	}
	if sizes == nil {
		sizes = []int64{800}
	}
	transform := NewGeneralizedRCNNTransform(sizes, count("MaxSize", opt.MaxSize, 1333), mean, std,
		GeneralizedRCNNTransformOptions{SizeDivisible: opt.SizeDivisible, FixedSize: opt.FixedSize})
	return nn.Init(&FasterRCNN{Transform: transform, Backbone: backbone, RPN: rpn, RoIHeads: heads})
}

func defaultAnchors() *AnchorGenerator {
	var sizes, ratios [][]float64
	for _, n := range []float64{32, 64, 128, 256, 512} {
		sizes, ratios = append(sizes, []float64{n}), append(ratios, []float64{0.5, 1, 2})
	}
	return NewAnchorGenerator(sizes, ratios)
}

// Forward finds what is in images, each (3, H, W) of a floating point dtype; they may be of several sizes. While
// training it returns losses instead, for which it needs targets, one for each image: "loss_objectness",
// "loss_rpn_box_reg", "loss_classifier" and "loss_box_reg". It panics with a ValueError for other shapes, for a box
// without a size, with NaN or an infinite corner, and with a TypeError for images that are not of a floating point
// dtype or labels that are not int64.
func (m *FasterRCNN) Forward(images []gotorch.Tensor, targets []Target) (Losses, []Detections) {
	const op = "detection.FasterRCNN"
	if len(images) == 0 {
		panic(args.ValueError(op, "there must be an image at least"))
	}
	for i, image := range images {
		if !image.Defined() {
			panic(args.TypeError(op, "images[%d] is no tensor: it is the zero Tensor", i))
		}
	}
	if m.Training() || targets != nil {
		check(op, images, targets)
	}
	originals := make([][2]int64, len(images))
	for i, image := range images {
		if image.Dim() != 3 {
			panic(args.ValueError(op, "images is expected to be a list of 3d tensors of shape [C, H, W], got %v", image.Shape()))
		}
		originals[i] = [2]int64(image.Shape()[1:])
	}
	batch, targets := m.Transform.Forward(images, targets)
	features := m.Backbone.Forward(batch.Tensors)
	proposals, losses := m.RPN.Forward(batch, features, targets)
	found, more := m.RoIHeads.Forward(features, proposals, batch.ImageSizes, targets)
	if !m.Training() {
		return nil, m.Transform.Postprocess(found, batch.ImageSizes, originals)
	}
	for name, loss := range more {
		losses[name] = loss
	}
	return losses, nil
}

// check panics if targets are not what Forward needs.
func check(op string, images []gotorch.Tensor, targets []Target) {
	if len(targets) != len(images) {
		panic(args.ValueError(op, "there should be a target for each of %d images, and are %d: training needs them", len(images), len(targets)))
	}
	for i, t := range targets {
		if !t.Boxes.Defined() || !t.Labels.Defined() {
			panic(args.TypeError(op, "target %d has no boxes or no labels", i))
		}
		shape := t.Boxes.Shape()
		if len(shape) != 2 || shape[1] != 4 {
			panic(args.ValueError(op, "Expected target boxes to be a tensor of shape [N, 4], got %v in target %d", shape, i))
		}
		if labels := t.Labels.Shape(); len(labels) != 1 || labels[0] != shape[0] {
			panic(args.ValueError(op, "target %d has %d boxes, and labels of shape %v", i, shape[0], labels))
		}
		corners := gotorch.ToSlice[float64](t.Boxes.Detach())
		for j := 0; j < len(corners); j += 4 {
			if b := corners[j : j+4]; !(b[2]-b[0] > 0 && b[3]-b[1] > 0 && b[2]-b[0] < maxSide && b[3]-b[1] < maxSide) {
				panic(args.ValueError(op, "All bounding boxes should have positive height and width. Found invalid box %v for target at index %d.", b, i))
			}
		}
	}
}

// maxSide is more than any image has, and less than what is infinite.
const maxSide = 1e30

// Detect is [FasterRCNN.Forward] without gradients. It panics with a RuntimeError while the model is training.
func (m *FasterRCNN) Detect(images []gotorch.Tensor) (found []Detections) {
	if m.Training() {
		panic(args.Errorf("detection.FasterRCNN", gotorch.RuntimeError, "the model is training: call Eval first"))
	}
	gotorch.NoGrad(func() { _, found = m.Forward(images, nil) })
	return found
}

// OverwriteEps sets what all [ops.FrozenBatchNorm2d] of a model add to the variance. torchvision sets 0 for the
// weights that were learned without it: FasterRCNN_ResNet50_FPN_Weights.COCO_V1 and others of that time.
func OverwriteEps(model nn.Modular, eps float64) {
	for _, m := range model.NamedModules() {
		if norm, ok := m.(*ops.FrozenBatchNorm2d); ok {
			norm.Eps = eps
		}
	}
}

// Architectures ---------------------------------------------------------------------------------------

// architecture returns the options of one with their defaults, and how many layers of the backbone learn.
func architecture(op string, opts []FasterRCNNOptions, layers int64) (opt FasterRCNNOptions, trainable int64) {
	opt = args.Option(opts)
	if !args.Given(opt.NumClasses) && opt.BoxPredictor == nil {
		opt.NumClasses = 91
	}
	trainable = layers
	if opt.Trained {
		trainable = args.Int(op, "TrainableBackboneLayers", opt.TrainableBackboneLayers, 3)
	} else if args.Given(opt.TrainableBackboneLayers) {
		panic(args.ValueError(op, "TrainableBackboneLayers has no effect unless Trained is set: all layers of new weights learn"))
	}
	if trainable < 0 || trainable > layers {
		panic(args.ValueError(op, "Trainable backbone layers should be in the range [0,%d], got %d", layers, trainable))
	}
	return opt, trainable
}

// norms returns the norms of a backbone.
func norms(frozen bool) models.NormLayer {
	if frozen {
		return func(channels int64) nn.Layer { return ops.NewFrozenBatchNorm2d(channels) }
	}
	return func(channels int64) nn.Layer { return nn.BatchNorm2d(channels) }
}

// ofResNet makes a backbone of a ResNet whose last layers learn.
func ofResNet(resnet *models.ResNet, trainable int64, norm func(channels int64) nn.Layer) *BackboneWithFPN {
	parts := []nn.Modular{resnet.Layer4, resnet.Layer3, resnet.Layer2, resnet.Layer1, resnet.Conv1}
	for i, part := range parts {
		freeze(part, int64(i) >= trainable)
	}
	freeze(resnet.BN1, trainable < 5)
	freeze(resnet.FC, true)
	last := resnet.FC.(*nn.LinearModule).InFeatures
	return NewBackboneWithFPN(resnet, map[string]string{"layer1": "0", "layer2": "1", "layer3": "2", "layer4": "3"},
		[]int64{last / 8, last / 4, last / 2, last}, 256, BackboneWithFPNOptions{NormLayer: norm})
}

func freeze(m nn.Modular, frozen bool) {
	if frozen {
		for _, p := range m.Parameters() {
			p.RequiresGrad_(false)
		}
	}
}

// FasterRCNNResNet50FPN is [FasterRCNN] with a pyramid of the maps of a ResNet-50.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.detection.fasterrcnn_resnet50_fpn.html.
func FasterRCNNResNet50FPN(opts ...FasterRCNNOptions) *FasterRCNN {
	const op = "detection.FasterRCNNResNet50FPN"
	opt, trainable := architecture(op, opts, 5)
	backbone := ofResNet(models.ResNet50(models.ResNetOptions{NormLayer: norms(opt.Trained)}), trainable, nil)
	return newFasterRCNN(op, backbone, backbone.OutChannels, opt)
}

// FasterRCNNResNet50FPNV2 is [FasterRCNNResNet50FPN] with norms in the pyramid and in the head, and more layers there.
// Its norms are not frozen, also where Trained is set.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.detection.fasterrcnn_resnet50_fpn_v2.html.
func FasterRCNNResNet50FPNV2(opts ...FasterRCNNOptions) *FasterRCNN {
	const op = "detection.FasterRCNNResNet50FPNV2"
	opt, trainable := architecture(op, opts, 5)
	if opt.RPNAnchorGenerator != nil || opt.RPNHead != nil || opt.BoxHead != nil {
		panic(args.ValueError(op, "the generator and the heads are the architecture's own: use NewFasterRCNN"))
	}
	norm := norms(false)
	backbone := ofResNet(models.ResNet50(), trainable, norm)
	opt.RPNAnchorGenerator = defaultAnchors()
	opt.RPNHead = NewRPNHead(backbone.OutChannels, opt.RPNAnchorGenerator.NumAnchorsPerLocation()[0], RPNHeadOptions{ConvDepth: 2})
	opt.BoxHead = NewFastRCNNConvFCHead([3]int64{backbone.OutChannels, 7, 7}, []int64{256, 256, 256, 256}, []int64{1024}, FastRCNNConvFCHeadOptions{NormLayer: norm})
	return newFasterRCNN(op, backbone, backbone.OutChannels, opt)
}

// FasterRCNNMobileNetV3LargeFPN is [FasterRCNN] with a pyramid of the maps of a MobileNetV3, for small machines.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.detection.fasterrcnn_mobilenet_v3_large_fpn.html.
func FasterRCNNMobileNetV3LargeFPN(opts ...FasterRCNNOptions) *FasterRCNN {
	return ofMobileNet("detection.FasterRCNNMobileNetV3LargeFPN", opts, func(*FasterRCNNOptions) {})
}

// FasterRCNNMobileNetV3Large320FPN is [FasterRCNNMobileNetV3LargeFPN] for images of 320 to 640 pixels, with fewer
// proposals.
//
// See https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn.html.
func FasterRCNNMobileNetV3Large320FPN(opts ...FasterRCNNOptions) *FasterRCNN {
	return ofMobileNet("detection.FasterRCNNMobileNetV3Large320FPN", opts, func(opt *FasterRCNNOptions) {
		if opt.MinSize == nil {
			opt.MinSize = []int64{320}
		}
		for field, value := range map[*gotorch.Scalar]int{&opt.MaxSize: 640, &opt.RPNPreNMSTopNTest: 150, &opt.RPNPostNMSTopNTest: 150} {
			if !args.Given(*field) {
				*field = value
			}
		}
	})
}

func ofMobileNet(op string, opts []FasterRCNNOptions, more func(opt *FasterRCNNOptions)) *FasterRCNN {
	opt, trainable := architecture(op, opts, 6)
	if opt.RPNAnchorGenerator != nil {
		panic(args.ValueError(op, "the generator is the architecture's own: use NewFasterRCNN"))
	}
	if !args.Given(opt.RPNScoreThresh) {
		opt.RPNScoreThresh = 0.05
	}
	more(&opt)
	features := models.MobileNetV3Large(models.MobileNetV3Options{NormLayer: norms(opt.Trained)}).Features.(*nn.SequentialModule)
	// The stages begin where maps become smaller, and the last layer is one.
	stages, channels := []int64{0}, []int64{0}
	last := len(features.Layers) - 1
	for i, layer := range features.Layers {
		if block, ok := layer.(*models.InvertedResidual); ok && block.Downsamples {
			stages, channels = append(stages, int64(i)), append(channels, block.OutChannels)
		}
	}
	end := features.Layers[last].(*ops.Conv2dNormActivation)
	stages, channels = append(stages, int64(last)), append(channels, end.Layers[0].(*nn.Conv2dModule).OutChannels)
	n := int64(len(stages))
	before := int64(len(features.Layers))
	if trainable > 0 {
		before = stages[n-trainable]
	}
	for _, layer := range features.Layers[:before] {
		freeze(layer, true)
	}
	name := func(i int64) string { return fmt.Sprint(stages[i]) }
	backbone := NewBackboneWithFPN(features, map[string]string{name(n - 2): "0", name(n - 1): "1"}, channels[n-2:], 256)
	var sizes, ratios [][]float64
	for range 3 {
		sizes, ratios = append(sizes, []float64{32, 64, 128, 256, 512}), append(ratios, []float64{0.5, 1, 2})
	}
	opt.RPNAnchorGenerator = NewAnchorGenerator(sizes, ratios)
	return newFasterRCNN(op, backbone, backbone.OutChannels, opt)
}
