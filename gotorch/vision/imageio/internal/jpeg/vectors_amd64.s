#include "textflag.h"

// Two factors of 16 bits, the first for the lower half of each lane of 32 bits, in all lanes.
#define PAIRS(name, first, second) \
	DATA name<>+0(SB)/2, $first; \
	DATA name<>+2(SB)/2, $second; \
	GLOBL name<>(SB), RODATA|NOPTR, $4

PAIRS(e2Of26, 4433, -10704)
PAIRS(e3Of26, 10703, 4433)
PAIRS(z3Of, -6436, 9633)
PAIRS(z4Of, 9633, 6437)
PAIRS(o0Of17, -7373, -4927)
PAIRS(o3Of17, 4926, -7373)
PAIRS(o1Of35, -20995, -4176)
PAIRS(o2Of35, 4177, -20995)
PAIRS(greenOf, -22554, 18734)
PAIRS(redOf, 26345, 26345)
PAIRS(blueOf, -14942, -14942)
PAIRS(centre, -128, -128)
PAIRS(ones, 1, 1)
PAIRS(sevens, 7, 7)
PAIRS(eights, 8, 8)

DATA halfColumns<>+0(SB)/4, $0x400
GLOBL halfColumns<>(SB), RODATA|NOPTR, $4
DATA halfRows<>+0(SB)/4, $0x20000
GLOBL halfRows<>(SB), RODATA|NOPTR, $4
DATA half<>+0(SB)/4, $0x8000
GLOBL half<>(SB), RODATA|NOPTR, $4
DATA signs<>+0(SB)/4, $0x80808080
GLOBL signs<>(SB), RODATA|NOPTR, $4

// The halves of each lane of 32 bits, the other way round.
DATA swapped<>+0(SB)/8, $0x0504070601000302
DATA swapped<>+8(SB)/8, $0x0d0c0f0e09080b0a
GLOBL swapped<>(SB), RODATA|NOPTR, $16

// Four columns of four bytes to four rows.
DATA turned4<>+0(SB)/8, $0x0d0905010c080400
DATA turned4<>+8(SB)/8, $0x0f0b07030e0a0602
GLOBL turned4<>(SB), RODATA|NOPTR, $16

// A row of 32 words as numbers of 32 bits: the right one has lent 1 to a left one that is negative.
#define ROW(at, y) \
	VMOVDQU at(SI), y; \
	VPSRAD $31, y, Y8; \
	VPSLLQ $32, Y8, Y8; \
	VPSUBD Y8, y, y

#define TIMES(pair, from, to) \
	VPBROADCASTD pair<>(SB), to; \
	VPMADDWD to, from, to

// Eight transforms of eight points. In: Y0 has x0 and x4 in the halves of its lanes, Y1 x1 and x7, Y2 x2 and x6, Y3 x3 and x5;
// Y14 what rounds, Y15 what swaps. Out: Y0 to Y7. Sums of what comes in wrap around in 16 bits, as libjpeg's.
#define TRANSFORM(bits) \
	VPSHUFB Y15, Y0, Y4; \
	VPADDW Y4, Y0, Y5; \
	VPSUBW Y4, Y0, Y4; \
	VPSLLD $16, Y5, Y5; \
	VPSRAD $3, Y5, Y5; \
	VPADDD Y14, Y5, Y5; \
	VPSLLD $16, Y4, Y4; \
	VPSRAD $3, Y4, Y4; \
	VPADDD Y14, Y4, Y4; \
	TIMES(e2Of26, Y2, Y6); \
	TIMES(e3Of26, Y2, Y7); \
	VPADDD Y7, Y5, Y8; \
	VPSUBD Y7, Y5, Y5; \
	VPADDD Y6, Y4, Y9; \
	VPSUBD Y6, Y4, Y4; \
	VPSHUFB Y15, Y1, Y6; \
	VPADDW Y3, Y6, Y6; \
	TIMES(z3Of, Y6, Y7); \
	TIMES(z4Of, Y6, Y0); \
	TIMES(o0Of17, Y1, Y10); \
	TIMES(o3Of17, Y1, Y11); \
	TIMES(o1Of35, Y3, Y12); \
	TIMES(o2Of35, Y3, Y13); \
	VPADDD Y7, Y10, Y10; \
	VPADDD Y0, Y11, Y11; \
	VPADDD Y0, Y12, Y12; \
	VPADDD Y7, Y13, Y13; \
	VPADDD Y11, Y8, Y0; \
	VPSUBD Y11, Y8, Y7; \
	VPADDD Y13, Y9, Y1; \
	VPSUBD Y13, Y9, Y6; \
	VPADDD Y12, Y4, Y2; \
	VPSUBD Y12, Y4, Y12; \
	VPADDD Y10, Y5, Y3; \
	VPSUBD Y10, Y5, Y4; \
	VPSRAD $bits, Y0, Y0; \
	VPSRAD $bits, Y1, Y1; \
	VPSRAD $bits, Y2, Y2; \
	VPSRAD $bits, Y3, Y3; \
	VPSRAD $bits, Y4, Y4; \
	VPSRAD $bits, Y12, Y5; \
	VPSRAD $bits, Y6, Y6; \
	VPSRAD $bits, Y7, Y7

// func transformAVX2(words *[32]int64, to *byte, stride int)
TEXT ·transformAVX2(SB), NOSPLIT, $0-24
	MOVQ words+0(FP), SI
	MOVQ to+8(FP), DI
	MOVQ stride+16(FP), DX
	ROW(0, Y0)
	ROW(32, Y1)
	ROW(64, Y2)
	ROW(96, Y3)
	ROW(128, Y4)
	ROW(160, Y5)
	ROW(192, Y6)
	ROW(224, Y7)
	VPXOR Y8, Y8, Y8
	VMOVDQU Y8, 0(SI)
	VMOVDQU Y8, 32(SI)
	VMOVDQU Y8, 64(SI)
	VMOVDQU Y8, 96(SI)
	VMOVDQU Y8, 128(SI)
	VMOVDQU Y8, 160(SI)
	VMOVDQU Y8, 192(SI)
	VMOVDQU Y8, 224(SI)

	VPSLLD $16, Y4, Y4
	VPSLLD $16, Y7, Y7
	VPSLLD $16, Y6, Y6
	VPSLLD $16, Y5, Y5
	VPBLENDW $0xaa, Y4, Y0, Y0
	VPBLENDW $0xaa, Y7, Y1, Y1
	VPBLENDW $0xaa, Y6, Y2, Y2
	VPBLENDW $0xaa, Y5, Y3, Y3
	VBROADCASTI128 swapped<>(SB), Y15
	VPBROADCASTD halfColumns<>(SB), Y14
	TRANSFORM(11)

	// Rows to columns, of which 0 and 4, 1 and 5, 2 and 6, 3 and 7 share lanes.
	VPACKSSDW Y1, Y0, Y0
	VPACKSSDW Y3, Y2, Y2
	VPACKSSDW Y5, Y4, Y4
	VPACKSSDW Y7, Y6, Y6
	VPERM2I128 $0x20, Y4, Y0, Y1
	VPERM2I128 $0x31, Y4, Y0, Y3
	VPERM2I128 $0x20, Y6, Y2, Y8
	VPERM2I128 $0x31, Y6, Y2, Y9
	VPUNPCKLWD Y3, Y1, Y5
	VPUNPCKHWD Y3, Y1, Y7
	VPUNPCKLWD Y9, Y8, Y10
	VPUNPCKHWD Y9, Y8, Y11
	VPUNPCKLDQ Y7, Y5, Y0
	VPUNPCKHDQ Y7, Y5, Y1
	VPUNPCKLDQ Y11, Y10, Y8
	VPUNPCKHDQ Y11, Y10, Y9
	VPUNPCKHQDQ Y8, Y0, Y5
	VPUNPCKLQDQ Y8, Y0, Y0
	VPUNPCKHQDQ Y9, Y1, Y7
	VPUNPCKLQDQ Y9, Y1, Y2
	VPBLENDW $0xaa, Y7, Y5, Y1
	VPBLENDW $0xaa, Y5, Y7, Y3

	VPBROADCASTD halfRows<>(SB), Y14
	TRANSFORM(18)

	VPACKSSDW Y1, Y0, Y0
	VPACKSSDW Y3, Y2, Y2
	VPACKSSDW Y5, Y4, Y4
	VPACKSSDW Y7, Y6, Y6
	VPACKSSWB Y2, Y0, Y0
	VPACKSSWB Y6, Y4, Y4
	VPBROADCASTD signs<>(SB), Y8
	VBROADCASTI128 turned4<>(SB), Y9
	VPXOR Y8, Y0, Y0
	VPXOR Y8, Y4, Y4
	VPSHUFB Y9, Y0, Y0
	VPSHUFB Y9, Y4, Y4
	VPUNPCKLDQ Y4, Y0, Y1
	VPUNPCKHDQ Y4, Y0, Y2
	VEXTRACTI128 $1, Y1, X3
	VEXTRACTI128 $1, Y2, X4
	LEAQ (DX)(DX*2), CX
	LEAQ (DI)(DX*4), BX
	VMOVQ X1, (DI)
	VPEXTRQ $1, X1, (DI)(DX*1)
	VMOVQ X2, (DI)(DX*2)
	VPEXTRQ $1, X2, (DI)(CX*1)
	VMOVQ X3, (BX)
	VPEXTRQ $1, X3, (BX)(DX*1)
	VMOVQ X4, (BX)(DX*2)
	VPEXTRQ $1, X4, (BX)(CX*1)
	VZEROUPPER
	RET

// func planesAVX2(red, green, blue, luma, cb, cr *byte, n int)
TEXT ·planesAVX2(SB), NOSPLIT, $0-56
	MOVQ red+0(FP), DI
	MOVQ green+8(FP), SI
	MOVQ blue+16(FP), DX
	MOVQ luma+24(FP), R8
	MOVQ cb+32(FP), R9
	MOVQ cr+40(FP), R10
	MOVQ n+48(FP), CX
	XORQ AX, AX
	VPBROADCASTD redOf<>(SB), Y10
	VPBROADCASTD blueOf<>(SB), Y11
	VPBROADCASTD greenOf<>(SB), Y12
	VPBROADCASTD centre<>(SB), Y13
	VPBROADCASTD ones<>(SB), Y14
	VPBROADCASTD half<>(SB), Y15

next:
	VPMOVZXBW (R8)(AX*1), Y0
	VPMOVZXBW (R9)(AX*1), Y1
	VPMOVZXBW (R10)(AX*1), Y2
	VPADDW Y13, Y1, Y1
	VPADDW Y13, Y2, Y2

	// Red is luma + cr + (26345 cr + 2¹⁵)/2¹⁶; half of that is lost and rounded at the end.
	VPADDW Y2, Y2, Y3
	VPMULHW Y10, Y3, Y4
	VPADDW Y14, Y4, Y4
	VPSRAW $1, Y4, Y4
	VPADDW Y2, Y4, Y4
	VPADDW Y0, Y4, Y4

	// Blue is luma + 2 cb + (2¹⁵ - 14942 cb)/2¹⁶.
	VPADDW Y1, Y1, Y5
	VPMULHW Y11, Y5, Y6
	VPADDW Y14, Y6, Y6
	VPSRAW $1, Y6, Y6
	VPADDW Y5, Y6, Y6
	VPADDW Y0, Y6, Y6

	// Green is luma - cr + (18734 cr - 22554 cb + 2¹⁵)/2¹⁶.
	VPUNPCKLWD Y2, Y1, Y7
	VPUNPCKHWD Y2, Y1, Y8
	VPMADDWD Y12, Y7, Y7
	VPMADDWD Y12, Y8, Y8
	VPADDD Y15, Y7, Y7
	VPADDD Y15, Y8, Y8
	VPSRAD $16, Y7, Y7
	VPSRAD $16, Y8, Y8
	VPACKSSDW Y8, Y7, Y7
	VPSUBW Y2, Y7, Y7
	VPADDW Y0, Y7, Y7

	VPACKUSWB Y4, Y4, Y4
	VPACKUSWB Y7, Y7, Y7
	VPACKUSWB Y6, Y6, Y6
	VPERMQ $0x08, Y4, Y4
	VPERMQ $0x08, Y7, Y7
	VPERMQ $0x08, Y6, Y6
	VMOVDQU X4, (DI)(AX*1)
	VMOVDQU X7, (SI)(AX*1)
	VMOVDQU X6, (DX)(AX*1)
	ADDQ $16, AX
	CMPQ AX, CX
	JLT next
	VZEROUPPER
	RET

// func smoothAVX2(to *byte, near, far *uint64, n int)
TEXT ·smoothAVX2(SB), NOSPLIT, $0-32
	MOVQ to+0(FP), DI
	MOVQ near+8(FP), SI
	MOVQ far+16(FP), DX
	MOVQ n+24(FP), CX
	XORQ AX, AX
	VPBROADCASTD eights<>(SB), Y14
	VPBROADCASTD sevens<>(SB), Y15

#define SUM(at, to) \
	VMOVDQU at(SI)(AX*1), to; \
	VPADDW to, to, Y7; \
	VPADDW Y7, to, to; \
	VPADDW at(DX)(AX*1), to, to

more:
	SUM(-2, Y0)
	SUM(0, Y1)
	SUM(2, Y2)
	VPADDW Y1, Y1, Y3
	VPADDW Y3, Y1, Y1
	VPADDW Y14, Y0, Y0
	VPADDW Y15, Y2, Y2
	VPADDW Y1, Y0, Y0
	VPADDW Y1, Y2, Y2
	VPSRLW $4, Y0, Y0
	VPSRLW $4, Y2, Y2
	VPSLLW $8, Y2, Y2
	VPOR Y2, Y0, Y0
	VMOVDQU Y0, (DI)(AX*1)
	ADDQ $32, AX
	SUBQ $4, CX
	JGT more
	VZEROUPPER
	RET
