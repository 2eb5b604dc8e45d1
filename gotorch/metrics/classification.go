package metrics

import "gotorch.dev/gotorch"

// What follows are the metrics that count right and wrong answers, three of each kind.
//
// Of two classes ("Binary"): the output are labels 0 and 1, or scores, of any shape (N, ...), and the target labels of the
// same shape. Scores of which one is outside of [0, 1] are taken for logits, for each batch anew.
//
// Of several classes ("Multiclass"): the output are scores (N, C, ...), of which the largest counts, with a target of
// classes (N, ...); or classes in the target's shape.
//
// Of several labels ("Multilabel"): labels 0 and 1, or scores, of shape (N, L, ...), and a target of the same shape.
//
// The result is one number; with Average "none" a list of one for each class or label; and with MultidimAverage "samplewise"
// one of these for each sample, in the first dimension.

// BinaryAccuracy is the part of answers that are right.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/accuracy.html.
func BinaryAccuracy(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryAccuracy", accuracy, opts)
}

// MulticlassAccuracy is the part of answers that are right: of each class, and then the mean over classes that occur. With
// Average "micro" it is that of all samples, which most people call accuracy. With TopK the right class need only be among
// the best so many. The output is scores (N, C, ...) or classes (N, ...), the target classes (N, ...).
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/accuracy.html.
func MulticlassAccuracy(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassAccuracy", numClasses, accuracy, opts)
}

// MultilabelAccuracy is the part of labels that are right.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/accuracy.html.
func MultilabelAccuracy(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelAccuracy", numLabels, accuracy, opts)
}

// BinaryPrecision is the part of answers 1 that are right.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision.html.
func BinaryPrecision(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryPrecision", precision, opts)
}

// MulticlassPrecision is the part of answers for a class that are right.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision.html.
func MulticlassPrecision(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassPrecision", numClasses, precision, opts)
}

// MultilabelPrecision is the part of labels in the output that are right.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision.html.
func MultilabelPrecision(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelPrecision", numLabels, precision, opts)
}

// BinaryRecall is the part of targets 1 that were found.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/recall.html.
func BinaryRecall(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryRecall", recall, opts)
}

// MulticlassRecall is the part of a class that was found.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/recall.html.
func MulticlassRecall(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassRecall", numClasses, recall, opts)
}

// MultilabelRecall is the part of the target's labels that were found.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/recall.html.
func MultilabelRecall(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelRecall", numLabels, recall, opts)
}

// BinaryF1Score is the harmonic mean of precision and recall.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/f1_score.html.
func BinaryF1Score(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryF1Score", fBeta(1), opts)
}

// MulticlassF1Score is the harmonic mean of precision and recall.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/f1_score.html.
func MulticlassF1Score(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassF1Score", numClasses, fBeta(1), opts)
}

// MultilabelF1Score is the harmonic mean of precision and recall.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/f1_score.html.
func MultilabelF1Score(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelF1Score", numLabels, fBeta(1), opts)
}

// BinaryFBetaScore is a mean of precision and recall, in which recall counts beta times as much. It panics with a
// ValueError if beta is not positive.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/fbeta_score.html.
func BinaryFBetaScore(beta float64, opts ...BinaryOptions) *TensorMetric {
	return positive(beta, binaryScores("BinaryFBetaScore", fBeta(beta), opts))
}

// MulticlassFBetaScore is [BinaryFBetaScore] for several classes.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/fbeta_score.html.
func MulticlassFBetaScore(beta float64, numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return positive(beta, multiclassScores("MulticlassFBetaScore", numClasses, fBeta(beta), opts))
}

// MultilabelFBetaScore is [BinaryFBetaScore] for several labels.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/fbeta_score.html.
func MultilabelFBetaScore(beta float64, numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return positive(beta, multilabelScores("MultilabelFBetaScore", numLabels, fBeta(beta), opts))
}

func positive(beta float64, m *TensorMetric) *TensorMetric {
	if !(beta > 0) {
		panic(m.valueError("beta should be larger than 0, and is %v", beta))
	}
	return m
}

// BinarySpecificity is the part of targets 0 that were answered with 0.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/specificity.html.
func BinarySpecificity(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinarySpecificity", specificity, opts)
}

// MulticlassSpecificity is the part of what is not of a class that was not taken for it.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/specificity.html.
func MulticlassSpecificity(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassSpecificity", numClasses, specificity, opts)
}

// MultilabelSpecificity is the part of labels that are not there and are not in the output.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/specificity.html.
func MultilabelSpecificity(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelSpecificity", numLabels, specificity, opts)
}

// BinaryHammingDistance is the part of answers that are wrong.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/hamming_distance.html.
func BinaryHammingDistance(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryHammingDistance", hamming, opts)
}

// MulticlassHammingDistance is the part of answers that are wrong, of each class and then the mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/hamming_distance.html.
func MulticlassHammingDistance(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassHammingDistance", numClasses, hamming, opts)
}

// MultilabelHammingDistance is the part of labels that are wrong.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/hamming_distance.html.
func MultilabelHammingDistance(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelHammingDistance", numLabels, hamming, opts)
}

// BinaryStatScores counts: five numbers, true positives, false positives, true negatives, false negatives, and how
// many targets are 1.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/stat_scores.html.
func BinaryStatScores(opts ...BinaryOptions) *TensorMetric {
	return binaryScores("BinaryStatScores", nil, opts)
}

// MulticlassStatScores has the five numbers of [BinaryStatScores] in its last dimension: their sums with Average
// "micro", int64 as those of "none", else float64.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/stat_scores.html.
func MulticlassStatScores(numClasses int64, opts ...MulticlassOptions) *TensorMetric {
	return multiclassScores("MulticlassStatScores", numClasses, nil, opts)
}

// MultilabelStatScores is [MulticlassStatScores] for labels. With MultidimAverage "samplewise" the weights of Average
// "weighted" are those of each sample, where torchmetrics divides them by the sum over all samples.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/stat_scores.html.
func MultilabelStatScores(numLabels int64, opts ...MultilabelOptions) *TensorMetric {
	return multilabelScores("MultilabelStatScores", numLabels, nil, opts)
}

// ExactMatchOptions are the options of [MulticlassExactMatch] and [MultilabelExactMatch].
type ExactMatchOptions struct {
	Threshold       gotorch.Scalar // of labels: a score above it says that one is there; default: 0.5
	MultidimAverage string         // or "samplewise": a value for each sample; default: "global"
	IgnoreIndex     *int64         // elements with this target do not count
}

// MulticlassExactMatch is the part of samples all of whose elements are right. Inputs are as of [MulticlassAccuracy].
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/exact_match.html.
func MulticlassExactMatch(numClasses int64, opts ...ExactMatchOptions) *TensorMetric {
	return exactMatch("MulticlassExactMatch", numClasses, false, opts)
}

// MultilabelExactMatch is the part of samples, or of their elements beyond the labels' dimension, all of whose labels are
// right. Inputs are as of [MultilabelAccuracy].
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/exact_match.html.
func MultilabelExactMatch(numLabels int64, opts ...ExactMatchOptions) *TensorMetric {
	return exactMatch("MultilabelExactMatch", numLabels, true, opts)
}
