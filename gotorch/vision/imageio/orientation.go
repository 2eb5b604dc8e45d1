package imageio

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/draw"
)

// orientation returns how a picture is to be turned, from 1, not at all, to 8, as EXIF numbers it.
func orientation(encoded []byte, format string) int {
	switch format {
	case "jpeg":
		return ofJPEG(encoded)
	case "png":
		return ofPNG(encoded)
	case "tiff":
		return ofTIFF(encoded)
	}
	return 1
}

// ofJPEG looks through the segments before the picture.
func ofJPEG(b []byte) int {
	for at := 2; at+4 <= len(b) && b[at] == 0xff; {
		marker := b[at+1]
		if marker == 0xff { // padding
			at++
			continue
		}
		if marker == 0xda || marker == 0xd9 { // the picture, or its end
			break
		}
		length := int(binary.BigEndian.Uint16(b[at+2:]))
		if length < 2 || at+2+length > len(b) {
			break
		}
		if segment := b[at+4 : at+2+length]; marker == 0xe1 && bytes.HasPrefix(segment, []byte("Exif\x00\x00")) {
			return ofTIFF(segment[6:])
		}
		at += 2 + length
	}
	return 1
}

// ofPNG looks for the chunk eXIf.
func ofPNG(b []byte) int {
	for at := 8; at+12 <= len(b); {
		length := int64(binary.BigEndian.Uint32(b[at:]))
		if length > int64(len(b)-at-12) {
			break
		}
		if string(b[at+4:at+8]) == "eXIf" {
			return ofTIFF(b[at+8:][:length])
		}
		at += 12 + int(length)
	}
	return 1
}

// ofTIFF looks for the tag of the orientation in the first directory.
func ofTIFF(b []byte) int {
	if len(b) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch string(b[:4]) {
	case "II*\x00":
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return 1
	}
	n := int64(order.Uint16(b[at:]))
	for i := range n {
		entry := at + 2 + 12*i
		if entry+12 > int64(len(b)) {
			break
		}
		if order.Uint16(b[entry:]) == 0x112 && order.Uint16(b[entry+2:]) == 3 {
			if turned := int(order.Uint16(b[entry+8:])); turned >= 1 && turned <= 8 {
				return turned
			}
			break
		}
	}
	return 1
}

// turn turns a picture by an orientation of EXIF's. Of the types that decoders make it keeps what the pixels are, but
// that the colours of a JPEG come out as red, green and blue.
func turn(picture image.Image, orientation int) image.Image {
	if orientation == 1 {
		return picture
	}
	b := picture.Bounds()
	frame := image.Rect(0, 0, b.Dx(), b.Dy())
	if orientation >= 5 {
		frame = image.Rect(0, 0, b.Dy(), b.Dx())
	}
	switch p := picture.(type) {
	case *image.Gray:
		turned := image.NewGray(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 1, b, orientation)
		return turned
	case *image.Paletted:
		turned := image.NewPaletted(frame, p.Palette)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 1, b, orientation)
		return turned
	case *image.Gray16:
		turned := image.NewGray16(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 2, b, orientation)
		return turned
	case *image.RGBA:
		turned := image.NewRGBA(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 4, b, orientation)
		return turned
	case *image.NRGBA:
		turned := image.NewNRGBA(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 4, b, orientation)
		return turned
	case *image.CMYK:
		turned := image.NewCMYK(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 4, b, orientation)
		return turned
	case *image.RGBA64:
		turned := image.NewRGBA64(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 8, b, orientation)
		return turned
	case *image.NRGBA64:
		turned := image.NewNRGBA64(frame)
		turnPixels(turned.Pix, turned.Stride, p.Pix, p.Stride, 8, b, orientation)
		return turned
	}
	colours := image.NewRGBA(b)
	draw.Draw(colours, b, picture, b.Min, draw.Src)
	return turn(colours, orientation)
}

// turnPixels turns pixels of so many bytes, of a picture whose first pixel is the first of from.
func turnPixels(to []uint8, toStride int, from []uint8, fromStride, size int, b image.Rectangle, orientation int) {
	w, h := b.Dx(), b.Dy()
	for y := range h {
		for x := range w {
			u, v := x, y
			switch orientation {
			case 2:
				u = w - 1 - x
			case 3:
				u, v = w-1-x, h-1-y
			case 4:
				v = h - 1 - y
			case 5:
				u, v = y, x
			case 6:
				u, v = h-1-y, x
			case 7:
				u, v = h-1-y, w-1-x
			case 8:
				u, v = y, w-1-x
			}
			copy(to[v*toStride+u*size:][:size], from[y*fromStride+x*size:])
		}
	}
}
